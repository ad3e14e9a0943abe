"""Population-guided off-policy reinforcement learning (p3s)."""
