"""The gateway: running systems ask for policies here and leave what they experienced."""
