"""On paper: what a layout needs in memory and takes in time, before anyone spends a GPU hour."""
