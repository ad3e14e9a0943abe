"""What of a run is shared with others: a folder with its policy, its results and a card."""
