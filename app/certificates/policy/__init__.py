"""What a reader or an operator accepts: policies, and the verdict of one on a certificate or on a plan."""
