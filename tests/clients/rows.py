"""All rows of the matrix."""

from clients.agents import AGENTS
from clients.programs import LIBRARIES

PROGRAMS = (*LIBRARIES, *AGENTS)
