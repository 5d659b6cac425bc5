"""`python -m foreword`: the command line."""

from foreword.cli.main import main

main()
