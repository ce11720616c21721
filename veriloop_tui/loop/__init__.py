"""The controller: attempts under the rule, told as events."""
