"""Search of hyper-parameters by trials, which Optuna, an extra, proposes."""
