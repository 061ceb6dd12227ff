"""RocketMQ 5's `Admin` service: what dashboards ask, and what they may change. Begin with `service`.

the whole           service
the parts           describing, resetting, posting, querying, message_index
"""
