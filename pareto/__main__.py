import sys

from pareto.cli import main

sys.exit(main())
