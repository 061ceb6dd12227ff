"""What a test does to the calls of clients, and what it sees of them: interceptors of the one place of all calls.

faults          table, actions, fault, latch
the record      call_log
of both         selection: which calls are meant; methods: those that there are; named: what a call of
                stratalog.connect is about; watched: the answers of a call that answers with a stream
"""

from .call_log import CallLog, ClientCall
from .fault import CallFault
from .table import FaultTable

__all__ = ["CallFault", "CallLog", "ClientCall", "FaultTable"]
