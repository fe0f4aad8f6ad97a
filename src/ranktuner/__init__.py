"""RankTuner."""
