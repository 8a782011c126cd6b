"""Self-contained HTML pages: their shell, and how a recorded run is drawn."""
