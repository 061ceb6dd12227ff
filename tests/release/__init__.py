"""What a release has to pass: `python -m tests.release COMMAND`. CONTRIBUTING.md says when to run which.

checks    all that CI checks: `build`, then the tests, which run the linter, mypy and the rules of imports
build     wheel and sdist, in an environment of its own: made, checked, installed and used
lock      write tests/release/constraints.txt: the versions of all that the tests need
oldest    the tests of the core with the oldest versions that pyproject.toml allows
stores    write the kept stores of this version of the format
"""
