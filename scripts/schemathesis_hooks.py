"""Changes of the requests that Schemathesis generates."""

import schemathesis


def without_fractions(value):
    """Converts 914.0 to 914. JSON Schema accepts both as an integer; the services accept only the second."""
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
