"""What scripts/schemathesis.sh changes in the requests that Schemathesis makes up."""

import schemathesis


def without_fractions(value):
    """JSON Schema takes 914.0 for an integer. The services do not, and their descriptions say so in words."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        return [without_fractions(item) for item in value]
    if isinstance(value, dict):
        return {name: without_fractions(item) for name, item in value.items()}
    return value


@schemathesis.hook
def map_body(context, body):
    return without_fractions(body)
