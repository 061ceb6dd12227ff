"""The messages of RocketMQ 5's `Admin` service, as `fields` writes them.

A map whose values are messages is a list of entries here, which has the same bytes.
"""

from typing import Final

ADMIN_MESSAGES: Final[dict[str, str]] = {
    "DescribeTopicStatusRequest": "1 deployment_name string?, 2 topic Resource",
    "DescribeTopicStatusResponse": (
        "1 status Status, 2 topic_message_type enum, 3 description string?, 4 create_timestamp Timestamp?, 5 tags texts"
    ),
    "ListSubscriptionRequest": "1 deployment_name string?, 2 topic Resource?, 3 group Resource?",
    "SubscriptionInfo": (
        "1 group Resource, 2 topic Resource, 3 expression FilterExpression, 4 online bool, 5 last_update_timestamp "
        "Timestamp, 6 message_model enum, 7 subscription_consistency bool"
    ),
    "ListSubscriptionResponse": "1 status Status, 2 subscription_info SubscriptionInfo*",
    "DescribeSubscriptionRequest": "1 deployment_name string?, 2 topic Resource?, 3 group Resource?",
    "ClientInfo": (
        "1 client_id string, 2 version string, 3 language string, 4 hostname string, 5 egress_ip string, 6 "
        "message_model enum"
    ),
    "ClientSubscriptionInfo": "1 client_info ClientInfo, 2 subscription_info SubscriptionInfo",
    "DescribeSubscriptionResponse": "1 status Status, 2 client_subscription_info ClientSubscriptionInfo*",
    "DeleteSubscriptionRequest": (
        "1 deployment_name string?, 2 topic Resource, 3 group Resource, 4 expression FilterExpression"
    ),
    "DeleteSubscriptionResponse": "1 status Status",
    "DescribeGroupAccumulationRequest": (
        "1 deployment_name string?, 2 group Resource, 3 topics Resource*, 4 lite_topic string?"
    ),
    "GroupAccumulation": (
        "1 inflight_messages int64, 2 ready_messages int64, 3 accumulation int64, 4 deliver_delay_time Duration, 5 "
        "last_consume_timestamp int64"
    ),
    "TopicAccumulation": "1 key string, 2 value GroupAccumulation",
    "DescribeGroupAccumulationResponse": (
        "1 status Status, 2 accumulation GroupAccumulation, 3 topic_accumulation TopicAccumulation*"
    ),
    "QueryTimeSpanRequest": "1 deployment_name string?, 2 group Resource, 3 topics Resource*",
    "QueueTimeSpan": (
        "1 message_queue MessageQueue, 2 min_timestamp int64, 3 max_timestamp int64, 4 consume_timestamp int64, 5 "
        "delay_time_ms int64"
    ),
    "QueryTimeSpanResponse": "1 status Status, 2 queue_time_span_list QueueTimeSpan*",
    "ListConsumerConnectionRequest": (
        "1 deployment_name string?, 2 group Resource, 3 topic Resource?, 4 liteTopic string?"
    ),
    "ListConsumerConnectionResponse": "1 status Status, 2 client_info ClientInfo*",
    "ResetGroupOffsetRequest": (
        "1 deployment_name string?, 2 group Resource, 3 topic Resource, 4 reset_timestamp Timestamp"
    ),
    "ResetGroupOffsetResponse": "1 status Status",
    "ListMessageRequest": (
        "1 deployment_name string?, 2 topic Resource, 3 max_message_nums int32, 4 begin_timestamp Timestamp, 5 "
        "end_timestamp Timestamp, 6 message_id string@search_key, 7 message_key string@search_key, 8 subscription "
        "string@search_key, 14 lite_topic string@search_key, 9 scroll_id string?, 10 page_num int32?, 11 page_size "
        "int32?, 12 broker_name string?, 13 queue_id int32?"
    ),
    "ListMessageResponse": "1 status Status, 2 messages Message*, 3 scroll_id string",
    "AdminSendMessageRequest": (
        "1 deployment_name string?, 2 topic Resource, 3 tag string?, 4 key string?, 5 body bytes, 6 user_properties "
        "texts, 7 system_properties SystemProperties?, 8 ext_info texts"
    ),
    "AdminSendMessageResponse": "1 status Status, 2 message_id string",
    "GetProxyRuntimeStatsRequest": "",
    "GetProxyRuntimeStatsResponse": (
        "1 status Status, 2 proxy_name string, 3 version string, 4 in_tps double, 5 out_tps double, 6 connections "
        "int64, 7 producers int64, 8 consumers int64"
    ),
}
