"""The console command `stratalog`.

the commands        app (those that look), changes and settled (those that write), spark, subscribed
what goes in        appended, files, rows, times
what comes out      messages, printed, inspected, files
how they end        ends
"""
