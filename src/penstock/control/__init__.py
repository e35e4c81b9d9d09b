"""The verbs: what people and programs can do to runs, written once for every face."""
