"""The client: an object with the calls of a store, whose store another process has open.

its calls           store, appending, reading, changing, subscription, transaction, connect
answers             promises, tickets
below               link, connection
"""
