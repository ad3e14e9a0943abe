"""A local web page that follows runs: what is new is read, sent and drawn, whenever the page asks.

finding → reading → shortening → following → serving → page/

    finding     run folders below the folders given, through no links, up to a limit
    reading     the rows that were added to a record since the last look, or that it was cut back
    shortening  rows as the few numbers that the page draws
    following   all runs: their states, their rows, and what of it a page does not have yet
    serving     HTTP on the loopback interface, for who knows the token
    page/       one HTML file, one style sheet, one script; charts and styles are the report's

Nothing is written, and nothing happens while no page asks.
"""
