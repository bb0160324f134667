"""Tools in Python for Toolhost.

    from toolhost import call, plugin, tool, ToolError

    plugin("greeter", description="Greets people.")

    @tool(readonly=True)
    def greet(name: str, times: int = 1) -> str:
        '''Greets somebody by name.'''
        return "\\n".join(["Hello, " + name] * times)

The type hints become the schema of the arguments, the docstring the description. What is
raised is the error of the tool; what is printed is its live output.
"""

from ._call import Call, Canceled, ConnectionRequired, HostError, Operation, ToolError, call
from ._schema import Field
from ._tools import plugin, tool

__all__ = ["Call", "Canceled", "ConnectionRequired", "Field", "HostError", "Operation", "ToolError", "call", "plugin", "tool"]
