"""Evaluation: problems, generators, graders, pass@k. Grading knows nothing of training."""
