"""Bugs of what is installed and loaded, and of the versions of the format."""

from __future__ import annotations

from .plant import Bug

IMPORTS = "tests/test_imports.py"
STORES = "tests/release/test_stores.py"

RELEASE: dict[str, Bug] = {
    "release: the package loads the store at once": Bug(
        "stratalog/__init__.py", "from .on_demand import names_on_demand\n",
        "from . import store\nfrom .on_demand import names_on_demand\n",
        (f"{IMPORTS}::test_importing_the_package_loads_a_handful_of_modules_and_not_numpy",),
    ),
    "release: a name comes from another module than types say": Bug(
        "store/__init__.py", '"SubscriptionSettings": "subscriptions.settings:Settings"',
        '"SubscriptionSettings": "topics.settings:TopicSettings"',
        (f"{IMPORTS}::test_places_say_what_type_checkers_are_told",),
    ),
    "release: dir does not show what was not used yet": Bug(
        "stratalog/on_demand.py", "{*vars(module), *places}", "vars(module)",
        (f"{IMPORTS}::test_dir_and_a_star_import_have_all_names",),
    ),
    "release: the store needs a package of an extra": Bug(
        "cache/container.py", "import os\n", "import os\n\nimport psutil as _psutil\n",
        (f"{IMPORTS}::test_a_store_that_appends_and_reads_has_loaded_nothing_of_the_extras",),
    ),
    "release: a command without its extra ends like one that failed": Bug(
        "stratalog/extras.py", "USAGE = 2", "USAGE = 1",
        (f"{IMPORTS}::test_a_command_without_the_extra_says_in_one_sentence_what_to_install",),
    ),
    "release: a machine's memory is taken from a file of its host": Bug(
        "cache/container.py", "or available <= total else free", "or True else free",
        ("tests/cache/test_plan.py::test_the_kernel_says_what_the_machine_has_available",),
    ),
    "release: records of settings begin otherwise than in stores that are there": Bug(
        "store/format/topic_settings.py", 'b"SLTS"', 'b"SLTX"',
        (f"{STORES}::test_a_kept_store_opens_with_all_that_it_held",),
    ),
    "release: ids of messages that are there are not understood": Bug(
        "store/format/message_ids.py", "IDS_VERSION: Final = 1", "IDS_VERSION: Final = 2",
        (f"{STORES}::test_a_kept_store_remembers_and_goes_on",),
    ),
    "release: the kept store of a version is written again": Bug(
        "tests/release/stores.py", 'path_of(version), "x")', 'path_of(version), "w")',
        (f"{STORES}::test_a_kept_store_is_never_written_again",),
    ),
}  # fmt: skip
