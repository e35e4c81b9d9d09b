"""Where every tool call passes: who asks, may they, do it elsewhere than in the event loop, say what to do next."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, TypeVar

from anyio import to_thread
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.tools import Tool
from mcp.types import CallToolResult, TextContent, ToolAnnotations
from pydantic import BaseModel, ValidationError
from pydantic_core import to_json, to_jsonable_python

from penstock.control import permissions
from penstock.control.permissions import Principal
from penstock.errors import PenstockError
from penstock.server.mcp.advice import advice
from penstock.server.mcp.backend import Backend, CommanderLike, ReadsLike

T = TypeVar("T")

Identify = Callable[[Any], Principal]
"""The HTTP request of a call, or None → who asks; raises Denied."""


def _hints(*, reads: bool = False, destroys: bool = False, again: bool = True) -> ToolAnnotations:
    return ToolAnnotations(
        read_only_hint=reads, destructive_hint=destroys, idempotent_hint=again, open_world_hint=False
    )


READS = _hints(reads=True)
STEERS = _hints()
"""States what should be: repeated, it changes nothing more."""
BEGINS = _hints(again=False)
"""Repeated, it begins another."""
DESTROYS = _hints(destroys=True)


@dataclass(frozen=True, slots=True)
class Offer:
    """A tool: a function whose first parameter is a Desk, whose docstring is for the assistant."""

    call: Callable[..., Any]
    title: str
    hints: ToolAnnotations

    @property
    def name(self) -> str:
        return self.call.__name__


@dataclass(frozen=True, slots=True)
class Desk:
    """One call: the control plane, and who asks."""

    backend: Backend
    who: Principal
    context: Context[Any, Any] | None = None

    @property
    def reads(self) -> ReadsLike:
        return self.backend.reads

    @property
    def commander(self) -> CommanderLike:
        return self.backend.commander

    async def away(self, call: Callable[..., T], *arguments: Any) -> T:
        """Do what blocks in another thread."""
        return await to_thread.run_sync(partial(call, *arguments))

    async def progress(self, done: float, total: float, words: str) -> None:
        """Tell an assistant that waits; one that cannot hear it is not disturbed."""
        if self.context is not None:
            await self.context.report_progress(done, total, words)


def tool_of(offer: Offer, backend: Backend, identify: Identify) -> Tool:
    """The SDK's tool; raise LookupError where the permission table does not know it."""
    if offer.name not in permissions.NEEDED:
        raise LookupError(f"the tool {offer.name} is not in control/permissions.py")

    async def call(ctx: Context[Any, Any], **arguments: Any) -> CallToolResult:
        try:
            who = identify(ctx.request_context.request)
            permissions.check(who, offer.name)
            desk = Desk(backend, who, ctx)
            if inspect.iscoroutinefunction(offer.call):
                return _result(await offer.call(desk, **arguments))
            return _result(await desk.away(partial(offer.call, desk, **arguments)))
        except PenstockError as error:
            raise ToolError(advice(offer.name, error)) from None
        except ValidationError as error:
            if not error.title.endswith("Request"):
                raise
            raise ToolError(f"{offer.name} was not done: {_faults(error)}.") from None

    _sign(call, offer)
    made = _Tool.from_function(
        call, name=offer.name, title=offer.title, description=_description(offer), annotations=offer.hints
    )
    return _strict(made)


class _Tool(Tool):
    """Says in one line what is wrong with arguments, without repeating them."""

    async def run(self, arguments: dict[str, Any], context: Any, convert_result: bool = False) -> Any:
        try:
            return await super().run(arguments, context, convert_result)
        except ToolError as error:
            if isinstance(error.__cause__, ValidationError):
                raise ToolError(_wrong_arguments(self, error.__cause__)) from error.__cause__
            raise


def _wrong_arguments(tool: Tool, error: ValidationError) -> str:
    known = ", ".join(tool.parameters.get("properties", {})) or "none"
    return f"{tool.name} was not done, its arguments are wrong: {_faults(error)}. It takes: {known}."


def _faults(error: ValidationError) -> str:
    """What is wrong, never what was given: that may be a secret."""
    return "; ".join(
        f"{'.'.join(map(str, item['loc'])) or 'arguments'}: {item['msg']}" for item in error.errors()[:10]
    )


def _sign(call: Any, offer: Offer) -> None:
    """Give the wrapper the parameters of the tool, without the desk."""
    signature = inspect.signature(offer.call)
    parameters = [
        parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        for name, parameter in list(signature.parameters.items())[1:]
    ]
    context = inspect.Parameter("ctx", inspect.Parameter.KEYWORD_ONLY, annotation=Context)
    answer = Annotated[CallToolResult, signature.return_annotation]
    call.__signature__ = signature.replace(parameters=[*parameters, context], return_annotation=answer)
    call.__annotations__ = {
        **{parameter.name: parameter.annotation for parameter in (*parameters, context)},
        "return": answer,
    }
    call.__name__ = offer.name


def _strict(tool: Tool) -> Tool:
    """Refuse arguments the tool does not have: one that is misspelt would silently do nothing."""
    model = tool.fn_metadata.arg_model
    model.model_config["extra"] = "forbid"
    model.model_rebuild(force=True)
    tool.parameters = _untitled(model.model_json_schema(by_alias=True))
    tool.fn_metadata.output_schema = _untitled(tool.fn_metadata.output_schema)
    return tool


def _untitled(schema: Any, names: bool = False) -> Any:
    """A schema without titles, which only repeat names: they would be a fifth of all that is read."""
    if isinstance(schema, list):
        return [_untitled(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        word: _untitled(part, names=word in ("properties", "$defs"))
        for word, part in schema.items()
        if names or word != "title"
    }


def _description(offer: Offer) -> str:
    return inspect.cleandoc(offer.call.__doc__ or "")


def _result(answer: BaseModel) -> CallToolResult:
    """Structured, and the same as compact text for those that read only that."""
    text = to_json(answer, by_alias=True, exclude_none=True, inf_nan_mode="null").decode()
    structured = to_jsonable_python(answer, by_alias=True, inf_nan_mode="null")
    return CallToolResult(content=[TextContent(type="text", text=text)], structured_content=structured)
