"""RocketMQ 5's service `MessagingService` on a store, as its official clients use it.

Begin with `endpoint`, then `service`.

    the whole           endpoint, options, service
    answers             statuses, times, together
    topics and routes   topics, routing, naming
    clients             clients, settings, telemetry
    messages            checking, translating
    sending             sending, recalling, transactions
    for dashboards      admin (a folder)
    receiving           groups, filters, receiving, settling, forwarding
    calls to the end    finishing
"""
