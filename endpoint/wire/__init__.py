"""The messages of RocketMQ 5's gRPC protocol, from field numbers alone: no generated code, no pool that others share.

codes       the numbers with names: status codes, types of messages and clients
fields      the table of messages and their fields; admin_fields those of the service `Admin`
pool        classes out of such a table
messages    the classes
"""

from .codes import Code
from .messages import CLASSES, SERVICE
from .pool import message_classes

__all__ = ["CLASSES", "SERVICE", "Code", "message_classes"]
