"""From a JSON schema to a grammar whose every text is a JSON document that fits the schema. Pure.

llama-cpp-python brings a converter of its own, but that passes over the keywords that it does not
know, and allows strings that are not JSON. Here a schema that cannot be held is refused, by name.
The grammar allows fewer documents than the schema: members come in the schema's order, and none
that it does not name unless it has `additionalProperties`.
"""

from __future__ import annotations

import json
from typing import Any, Final

from veriloop_tui.engine.grammar import gbnf
from veriloop_tui.engine.grammar.json_types import json_types
from veriloop_tui.engine.grammar.merge import NOTES, merged, shared_values, types
from veriloop_tui.engine.grammar.objects import object_body
from veriloop_tui.engine.grammar.rules import Rules, refused
from veriloop_tui.engine.grammar.values import count, number_rule, string_rule

_MAX_DEPTH: Final = 60
_MAX_VISITS: Final = 20_000

_WORDS_OF_TYPES: Final = {
    "object": {"properties", "required", "additionalProperties"},
    "array": {"items", "prefixItems", "minItems", "maxItems"},
    "string": {"pattern", "minLength", "maxLength", "format"},
    "number": {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"},
}
_BOUNDING: Final = frozenset[str]().union(*_WORDS_OF_TYPES.values())
_UNSUPPORTED: Final = (
    *("not", "if", "then", "else", "dependentRequired", "dependentSchemas", "dependencies"),
    *("patternProperties", "propertyNames", "minProperties", "maxProperties", "uniqueItems"),
    *("contains", "minContains", "maxContains", "additionalItems", "unevaluatedItems"),
    *("unevaluatedProperties", "$dynamicRef", "$recursiveRef"),
)


def schema_grammar(schema: str) -> str:
    """The grammar of a schema given as JSON text. Raises `EngineRefused` (400)."""
    rules = Rules()
    return rules.text(SchemaRules(schema, rules).rule())


class SchemaRules:
    """Adds the rules of one schema to a grammar."""

    def __init__(self, schema: str, rules: Rules) -> None:
        """Raises `EngineRefused` (400) if `schema` is not JSON."""
        self._rules = rules
        self._refs: dict[str, str] = {}
        self._visits = 0
        try:
            self._root = json.loads(schema)
        except (ValueError, RecursionError) as problem:
            raise refused("#", f"it is not JSON: {problem}") from None

    @property
    def root(self) -> Any:
        """The schema as a value."""
        return self._root

    def rule(self, schema: Any = None, where: str = "#") -> str:
        """The name of the rule for `schema`, a part of the whole; without one, for all of it.

        Raises `EngineRefused` (400) that names the place and the keyword.
        """
        return self._rule(self._root if schema is None else schema, where, frozenset())

    def _rule(self, schema: Any, where: str, through: frozenset[str]) -> str:
        """`through`: the references that led here without a character in between."""
        self._visits += 1
        if self._visits > _MAX_VISITS or where.count("/") > _MAX_DEPTH:
            raise refused("#", "it is too large or too deep")
        if schema is False:
            raise refused(where, "nothing fits 'false'")
        if schema is True:
            return "value"
        if not isinstance(schema, dict):
            raise refused(where, "it is not a schema")
        if "$ref" in schema and not schema.keys() - NOTES - {"$ref"}:
            return self._ref(schema["$ref"], where, through)
        flat = self._flat(schema, where, through)
        for word in _UNSUPPORTED:
            if word in flat and flat[word] not in (False, {}, []):
                raise refused(where, f"'{word}' is not supported")
        for word in ("anyOf", "oneOf"):
            if word in flat:
                return self._any_of(flat, word, where, through)
        if "const" in flat or "enum" in flat:
            return self._enum(flat, where)
        return self._typed(flat, where)

    def _ref(self, ref: Any, where: str, through: frozenset[str]) -> str:
        target = self._target(ref, where, through)
        if ref not in self._refs:
            self._refs[ref] = self._rules.reserve()
            inner = self._rule(target, ref, through | {ref})
            self._rules.define(self._refs[ref], inner)
        return self._refs[ref]

    def _target(self, ref: Any, where: str, through: frozenset[str]) -> Any:
        if not isinstance(ref, str) or not (ref == "#" or ref.startswith("#/")):
            raise refused(where, "'$ref' may only point into the schema itself")
        if ref in through:
            raise refused(where, f"'{ref}' refers to itself without an end")
        found = self._root
        for part in ref.split("/")[1:]:
            name = part.replace("~1", "/").replace("~0", "~")
            if isinstance(found, dict) and name in found:
                found = found[name]
            elif isinstance(found, list) and name.isdecimal() and int(name) < len(found):
                found = found[int(name)]
            else:
                raise refused(where, f"'{ref}' is not there")
        return found

    def _flat(self, schema: Any, where: str, through: frozenset[str]) -> dict[str, Any]:
        """The schema with what it refers to, and what its `allOf` says, put into it."""
        self._visits += 1
        if self._visits > _MAX_VISITS:
            raise refused("#", "it is too large or too deep")
        if not isinstance(schema, dict):
            if schema is True:
                return {}
            raise refused(where, "it is not a schema that can be joined with others")
        flat = {key: value for key, value in schema.items() if key not in ("$ref", "allOf")}
        parts = schema.get("allOf", [])
        if not isinstance(parts, list):
            raise refused(where, "'allOf' is not a list")
        for part in parts:
            flat = merged(flat, self._flat(part, where, through), where)
        if "$ref" in schema:
            target = self._target(schema["$ref"], where, through)
            flat = merged(flat, self._flat(target, where, through | {schema["$ref"]}), where)
        return flat

    def _any_of(
        self, schema: dict[str, Any], word: str, where: str, through: frozenset[str]
    ) -> str:
        choices = schema[word]
        rest = {key: value for key, value in schema.items() if key != word and key not in NOTES}
        if not isinstance(choices, list) or not choices or rest.keys() & {"anyOf", "oneOf"}:
            raise refused(where, f"'{word}' must be a list, and the only choice")
        names = []
        for number, choice in enumerate(choices):
            at = f"{where}/{word}/{number}"
            if rest:
                joined = merged(self._flat(choice, at, through), rest, at)
                names.append(self._rule(joined, at, through | self._refs_of(choice)))
            else:
                names.append(self._rule(choice, at, through))
        return self._rules.add(" | ".join(dict.fromkeys(names)))

    @staticmethod
    def _refs_of(schema: Any) -> frozenset[str]:
        ref = schema.get("$ref") if isinstance(schema, dict) else None
        return frozenset((ref,)) if isinstance(ref, str) else frozenset()

    def _enum(self, schema: dict[str, Any], where: str) -> str:
        values = schema.get("enum", [])
        if not isinstance(values, list):
            raise refused(where, "'enum' is not a list")
        if "const" in schema:
            const = [schema["const"]]
            values = shared_values(const, values) if "enum" in schema else const
        if bounding := schema.keys() & _BOUNDING - {"format"}:
            raise refused(where, f"'{min(bounding)}' cannot be held beside 'enum' or 'const'")
        if "type" in schema:
            wanted = self._types(schema, where)
            values = [value for value in values if json_types(value) & set(wanted)]
        if not values:
            raise refused(where, "no value is left in 'enum'")
        texts = (json.dumps(value, ensure_ascii=not _is_text(value)) for value in values)
        return self._rules.add(" | ".join(gbnf.literal(text) for text in dict.fromkeys(texts)))

    def _typed(self, schema: dict[str, Any], where: str) -> str:
        names = [self._of_type(kind, schema, where) for kind in self._types(schema, where)]
        if not names:
            raise refused(where, "no type is left")
        return names[0] if len(names) == 1 else self._rules.add(" | ".join(dict.fromkeys(names)))

    def _types(self, schema: dict[str, Any], where: str) -> list[str]:
        if "type" not in schema:
            return [kind for kind, words in _WORDS_OF_TYPES.items() if schema.keys() & words] or [
                "value"
            ]
        if not isinstance(schema["type"], str | list):
            raise refused(where, "'type' is not the name of a type")
        return types(schema["type"])

    def _of_type(self, kind: str, schema: dict[str, Any], where: str) -> str:
        match kind:
            case "object":
                body = object_body(schema, where, self._rules, self._inner)
                return self._rules.add(body) if body else "object"
            case "array":
                return self._array(schema, where)
            case "string":
                return string_rule(schema, where, self._rules)
            case "integer" | "number":
                return number_rule(kind, schema, where, self._rules)
            case "boolean" | "null" | "value":
                return kind
            case _:
                raise refused(where, f"there is no type '{kind}'")

    def _inner(self, schema: Any, where: str) -> str:
        return self._rule(schema, where, frozenset())

    def _array(self, schema: dict[str, Any], where: str) -> str:
        items, first = schema.get("items", True), schema.get("prefixItems", [])
        if isinstance(items, list):
            items, first = True, items
        if not isinstance(first, list):
            raise refused(where, "'prefixItems' is not a list")
        least, most = count(schema, "minItems", where) or 0, count(schema, "maxItems", where)
        if most is None and (items is False or (first and "items" not in schema)):
            most = max(len(first), 0 if items is False else least)
        if most is not None and (most < least or (items is False and least > len(first))):
            raise refused(where, "'minItems' is above what is allowed")
        first = first[:most]
        begin = ' "," blank '.join(
            self._inner(item, f"{where}/prefixItems/{number}") for number, item in enumerate(first)
        )
        if items is False or most == len(first):
            return self._rules.add(f'"[" blank {begin} blank "]"' if begin else '"[" blank "]"')
        item = self._inner(items, f"{where}/items")
        more = self._rules.add(f'"," blank {item}')
        if first:
            left = None if most is None else most - len(first)
            rest = self._rules.repeat(more, max(0, least - len(first)), left)
            return self._rules.add(f'"[" blank {begin} {rest} blank "]"')
        rest = self._rules.repeat(more, max(0, least - 1), None if most is None else most - 1)
        some = f"{item} {rest} blank"
        return self._rules.add(f'"[" blank {some if least else f"({some})?"} "]"')


def _is_text(value: Any) -> bool:
    """Whether it can be written in UTF-8: a lone surrogate cannot."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True
