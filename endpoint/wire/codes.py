"""The numbers of RocketMQ 5's protocol that the endpoint gives or understands."""

from enum import IntEnum


class Code(IntEnum):
    """What a call came to. From 40000 on the caller is wrong, from 50000 on the server."""

    OK = 20000
    MULTIPLE_RESULTS = 30000
    BAD_REQUEST = 40000
    ILLEGAL_ACCESS_POINT = 40001
    ILLEGAL_TOPIC = 40002
    ILLEGAL_CONSUMER_GROUP = 40003
    ILLEGAL_MESSAGE_TAG = 40004
    ILLEGAL_MESSAGE_KEY = 40005
    ILLEGAL_MESSAGE_GROUP = 40006
    ILLEGAL_MESSAGE_PROPERTY_KEY = 40007
    INVALID_TRANSACTION_ID = 40008
    ILLEGAL_MESSAGE_ID = 40009
    ILLEGAL_FILTER_EXPRESSION = 40010
    ILLEGAL_INVISIBLE_TIME = 40011
    ILLEGAL_DELIVERY_TIME = 40012
    INVALID_RECEIPT_HANDLE = 40013
    MESSAGE_PROPERTY_CONFLICT_WITH_TYPE = 40014
    UNRECOGNIZED_CLIENT_TYPE = 40015
    MESSAGE_CORRUPTED = 40016
    CLIENT_ID_REQUIRED = 40017
    ILLEGAL_POLLING_TIME = 40018
    ILLEGAL_OFFSET = 40019
    ILLEGAL_LITE_TOPIC = 40020
    UNAUTHORIZED = 40100
    FORBIDDEN = 40300
    NOT_FOUND = 40400
    MESSAGE_NOT_FOUND = 40401
    TOPIC_NOT_FOUND = 40402
    CONSUMER_GROUP_NOT_FOUND = 40403
    OFFSET_NOT_FOUND = 40404
    REQUEST_TIMEOUT = 40800
    PAYLOAD_TOO_LARGE = 41300
    MESSAGE_BODY_TOO_LARGE = 41301
    MESSAGE_BODY_EMPTY = 41302
    PRECONDITION_FAILED = 42800
    TOO_MANY_REQUESTS = 42900
    REQUEST_HEADER_FIELDS_TOO_LARGE = 43100
    MESSAGE_PROPERTIES_TOO_LARGE = 43101
    INTERNAL_ERROR = 50000
    INTERNAL_SERVER_ERROR = 50001
    HA_NOT_AVAILABLE = 50002
    NOT_IMPLEMENTED = 50100
    PROXY_TIMEOUT = 50400
    MASTER_PERSISTENCE_TIMEOUT = 50401
    UNSUPPORTED = 50500
    FAILED_TO_CONSUME_MESSAGE = 60000


class MessageType(IntEnum):
    """What a message wants: order, a delay, a transaction, or nothing of it."""

    NORMAL = 1
    FIFO = 2
    DELAY = 3
    TRANSACTION = 4
    LITE = 5
    PRIORITY = 6


class ClientType(IntEnum):
    """What a client is, by its settings and heartbeats."""

    PRODUCER = 1
    PUSH_CONSUMER = 2
    SIMPLE_CONSUMER = 3
    PULL_CONSUMER = 4
    LITE_PUSH_CONSUMER = 5
    LITE_SIMPLE_CONSUMER = 6


class Language(IntEnum):
    """The languages of clients to which the endpoint answers something of their own."""

    PYTHON = 6
    NODE_JS = 8


class FilterType(IntEnum):
    """How a filter is written."""

    TAG = 1
    SQL = 2


class Resolution(IntEnum):
    """How a transaction ends."""

    COMMIT = 1
    ROLLBACK = 2


class Permission(IntEnum):
    """What may be done with a queue."""

    READ_WRITE = 4


class Encoding(IntEnum):
    """How a body is written. A receiver refuses a body whose encoding it is not told."""

    IDENTITY = 1
    GZIP = 2


class DigestType(IntEnum):
    """What a digest is made with: MD5, as clients write CRC32 in three ways, and take another one for damage."""

    MD5 = 2
