"""The training loop: actors make rollouts, the learner makes versions, the keeper keeps both alive."""
