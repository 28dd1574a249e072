"""What users request, the plan that follows from it, and what a run reports. Free of torch."""
