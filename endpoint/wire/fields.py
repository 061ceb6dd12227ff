"""The messages of RocketMQ 5's gRPC protocol: their fields, by number.

Each field is written as "number name type". The types are those of `pool`: `?` is a field whose presence counts, `*` a
list, `@one` a member of the choice `one`, `texts` a map of text to text, `enum` a number of `codes`.

Not here: what no official client uses (PullMessage, UpdateOffset, GetOffset, QueryOffset).
"""

from typing import Final

PACKAGE: Final = "apache.rocketmq.v2"

MESSAGES: Final[dict[str, str]] = {
    "FilterExpression": "1 type enum, 2 expression string",
    "RetryPolicy": (
        "1 max_attempts int32, 2 exponential_backoff ExponentialBackoff@strategy, 3 customized_backoff "
        "CustomizedBackoff@strategy"
    ),
    "ExponentialBackoff": "1 initial Duration, 2 max Duration, 3 multiplier float",
    "CustomizedBackoff": "1 next Duration*",
    "Resource": "1 resource_namespace string, 2 name string",
    "SubscriptionEntry": "1 topic Resource, 2 expression FilterExpression",
    "Address": "1 host string, 2 port int32",
    "Endpoints": "1 scheme enum, 2 addresses Address*",
    "Broker": "1 name string, 2 id int32, 3 endpoints Endpoints",
    "MessageQueue": "1 topic Resource, 2 id int32, 3 permission enum, 4 broker Broker, 5 accept_message_types enum*",
    "Digest": "1 type enum, 2 checksum string",
    "SystemProperties": (
        "1 tag string?, 2 keys string*, 3 message_id string, 4 body_digest Digest, 5 body_encoding enum, 6 "
        "message_type enum, 7 born_timestamp Timestamp, 8 born_host string, 9 store_timestamp Timestamp?, 10 "
        "store_host string, 11 delivery_timestamp Timestamp?, 12 receipt_handle string?, 13 queue_id int32, 14 "
        "queue_offset int64?, 15 invisible_duration Duration?, 16 delivery_attempt int32?, 17 message_group "
        "string?, 18 trace_context string?, 19 orphaned_transaction_recovery_duration Duration?, 20 "
        "dead_letter_queue DeadLetterQueue?, 21 lite_topic string?, 22 priority int32?"
    ),
    "DeadLetterQueue": "1 topic string, 2 message_id string",
    "Message": "1 topic Resource, 2 user_properties texts, 3 system_properties SystemProperties, 4 body bytes",
    "Assignment": "1 message_queue MessageQueue",
    "Status": "1 code enum, 2 message string",
    "UA": "1 language enum, 2 version string, 3 platform string, 4 hostname string",
    "Settings": (
        "1 client_type enum?, 2 access_point Endpoints?, 3 backoff_policy RetryPolicy?, 4 request_timeout "
        "Duration?, 5 publishing Publishing@pub_sub, 6 subscription Subscription@pub_sub, 7 user_agent UA, 8 metric "
        "Metric"
    ),
    "Publishing": "1 topics Resource*, 2 max_body_size int32, 3 validate_message_type bool",
    "Subscription": (
        "1 group Resource?, 2 subscriptions SubscriptionEntry*, 3 fifo bool?, 4 receive_batch_size int32?, 5 "
        "long_polling_timeout Duration?, 6 lite_subscription_quota int32?, 7 max_lite_topic_size int32?"
    ),
    "Metric": "1 on bool, 2 endpoints Endpoints?",
    "OffsetOption": (
        "1 policy enum@offset_type, 2 offset int64@offset_type, 3 tail_n int64@offset_type, 4 timestamp "
        "int64@offset_type"
    ),
    "QueryRouteRequest": "1 topic Resource, 2 endpoints Endpoints",
    "QueryRouteResponse": "1 status Status, 2 message_queues MessageQueue*",
    "SendMessageRequest": "1 messages Message*",
    "SendResultEntry": (
        "1 status Status, 2 message_id string, 3 transaction_id string, 4 offset int64, 5 recall_handle string"
    ),
    "SendMessageResponse": "1 status Status, 2 entries SendResultEntry*",
    "QueryAssignmentRequest": "1 topic Resource, 2 group Resource, 3 endpoints Endpoints",
    "QueryAssignmentResponse": "1 status Status, 2 assignments Assignment*",
    "ReceiveMessageRequest": (
        "1 group Resource, 2 message_queue MessageQueue, 3 filter_expression FilterExpression, 4 batch_size int32, "
        "5 invisible_duration Duration?, 6 auto_renew bool, 7 long_polling_timeout Duration?, 8 attempt_id string?"
    ),
    "ReceiveMessageResponse": (
        "1 status Status@content, 2 message Message@content, 3 delivery_timestamp Timestamp@content"
    ),
    "AckMessageEntry": "1 message_id string, 2 receipt_handle string, 3 lite_topic string?",
    "AckMessageRequest": "1 group Resource, 2 topic Resource, 3 entries AckMessageEntry*",
    "AckMessageResultEntry": "1 message_id string, 2 receipt_handle string, 3 status Status",
    "AckMessageResponse": "1 status Status, 2 entries AckMessageResultEntry*",
    "ForwardMessageToDeadLetterQueueRequest": (
        "1 group Resource, 2 topic Resource, 3 receipt_handle string, 4 message_id string, 5 delivery_attempt "
        "int32, 6 max_delivery_attempts int32, 7 lite_topic string?"
    ),
    "ForwardMessageToDeadLetterQueueResponse": "1 status Status",
    "HeartbeatRequest": "1 group Resource?, 2 client_type enum",
    "HeartbeatResponse": "1 status Status",
    "EndTransactionRequest": (
        "1 topic Resource, 2 message_id string, 3 transaction_id string, 4 resolution enum, 5 source enum, 6 "
        "trace_context string"
    ),
    "EndTransactionResponse": "1 status Status",
    "PrintThreadStackTraceCommand": "1 nonce string",
    "ReconnectEndpointsCommand": "1 nonce string",
    "ThreadStackTrace": "1 nonce string, 2 thread_stack_trace string?",
    "VerifyMessageCommand": "1 nonce string, 2 message Message",
    "VerifyMessageResult": "1 nonce string",
    "RecoverOrphanedTransactionCommand": "1 message Message, 2 transaction_id string",
    "NotifyUnsubscribeLiteCommand": "1 lite_topic string",
    "TelemetryCommand": (
        "1 status Status?, 2 settings Settings@command, 3 thread_stack_trace ThreadStackTrace@command, 4 "
        "verify_message_result VerifyMessageResult@command, 5 recover_orphaned_transaction_command "
        "RecoverOrphanedTransactionCommand@command, 6 print_thread_stack_trace_command "
        "PrintThreadStackTraceCommand@command, 7 verify_message_command VerifyMessageCommand@command, 8 "
        "reconnect_endpoints_command ReconnectEndpointsCommand@command, 9 notify_unsubscribe_lite_command "
        "NotifyUnsubscribeLiteCommand@command"
    ),
    "NotifyClientTerminationRequest": "1 group Resource?",
    "NotifyClientTerminationResponse": "1 status Status",
    "ChangeInvisibleDurationRequest": (
        "1 group Resource, 2 topic Resource, 3 receipt_handle string, 4 invisible_duration Duration, 5 message_id "
        "string, 6 lite_topic string?, 7 suspend bool?"
    ),
    "ChangeInvisibleDurationResponse": "1 status Status, 2 receipt_handle string",
    "RecallMessageRequest": "1 topic Resource, 2 recall_handle string",
    "RecallMessageResponse": "1 status Status, 2 message_id string",
    "SyncLiteSubscriptionRequest": (
        "1 action enum, 2 topic Resource, 3 group Resource, 4 lite_topic_set string*, 5 version int64?, 6 "
        "offset_option OffsetOption?"
    ),
    "SyncLiteSubscriptionResponse": "1 status Status",
}
