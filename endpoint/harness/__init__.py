"""An endpoint for tests: a store, RocketMQ's port on it, and all that a test wants to happen to them.

Begin with `harness`. pytest's plugin gives it as the fixture `rocketmq`, and `process` as `rocketmq_process`.

    in the process of the test   harness, sent
    in a process of its own      process, child
    both                         starting
    time                         clock
"""

from .clock import RunningClock
from .harness import RocketMQHarness
from .process import RocketMQProcess
from .sent import SentMessage

__all__ = ["RocketMQHarness", "RocketMQProcess", "RunningClock", "SentMessage"]
