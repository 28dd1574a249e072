"""What users ask for, the plan it comes to, and what a run reports. Free of torch."""
