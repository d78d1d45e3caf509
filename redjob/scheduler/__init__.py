"""The scheduler node: owns partitions and fires their jobs on time."""
