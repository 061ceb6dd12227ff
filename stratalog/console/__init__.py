"""The console command `stratalog`.

the commands        app (those that look), changes and settled (those that write), spark, subscribed, serve
watching            top, frames, top_screen, top_page and its top.html, web
what goes in        appended, files, rows, times
what comes out      messages, printed, inspected, files
how they end        ends
"""
