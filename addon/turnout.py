"""For `mitmweb -s addon/turnout.py`; `turnout_addon` does it all and reloads the rules."""

from turnout_addon.addon import Turnout

addons = [Turnout()]
