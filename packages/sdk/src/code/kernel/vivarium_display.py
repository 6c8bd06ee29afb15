"""The formats in which a value can be shown, and the figures of matplotlib.

This module imports neither pandas nor matplotlib: they are used once the code has imported them.
"""

import base64
import importlib.abc
import importlib.machinery
import io
import json
import sys

FORMAT_CHARS = 8 * 1024 * 1024
TABLE_ROWS = 10_000
BACKEND = "vivarium_figures"


def formats_of(value):
    """Returns {format: data} with text/plain and all other formats of the value, and whether one was shortened."""
    text = repr(value)
    formats = {"text/plain": cut(text)}
    is_cut = formats["text/plain"] is not text
    if isinstance(value, type):
        return formats, is_cut
    for name, read in READERS.items():
        try:
            data = read(value)
        except Exception:  # A format that fails is left out.
            continue
        if data is None:
            continue
        if len(json.dumps(data)) <= FORMAT_CHARS:
            formats[name] = data
        else:
            is_cut = True
    return formats, is_cut


def cut(text):
    """Cuts text to at most FORMAT_CHARS characters of JSON, where one character can become twelve."""
    if len(text) * 12 <= FORMAT_CHARS:
        return text
    part = text[:FORMAT_CHARS]
    while (chars := len(json.dumps(part)) - len('""')) > FORMAT_CHARS:
        part = part[: len(part) * FORMAT_CHARS // chars]
    return text if len(part) == len(text) else part + "…"


def html(value):
    return offered(value, "_repr_html_", str)


def png(value):
    if is_figure(value):
        return png_of_figure(value)
    picture = offered(value, "_repr_png_", bytes)
    return None if picture is None else base64.b64encode(picture).decode()


def data(value):
    """The value as JSON: lists and dicts, tables, and values with `_repr_json_`. None when it has no such format."""
    if is_table(value):
        return json.loads(value.to_json(orient="split", date_format="iso")) if len(value) <= TABLE_ROWS else None
    plain = value if type(value) in (dict, list) else offered(value, "_repr_json_", object)
    return None if plain is None else json.loads(json.dumps(plain, allow_nan=False))


READERS = {"text/html": html, "image/png": png, "application/json": data}


def offered(value, method, kind):
    """Calls a method that notebooks use to show a value, if the class has it: an instance may pretend to."""
    if not callable(getattr(type(value), method, None)):
        return None
    shown = getattr(value, method)()
    return shown if isinstance(shown, kind) else None


def is_table(value):
    pandas = sys.modules.get("pandas")
    return pandas is not None and isinstance(value, (pandas.DataFrame, pandas.Series))


def is_figure(value):
    figure = sys.modules.get("matplotlib.figure")
    return figure is not None and isinstance(value, figure.Figure)


def png_of_figure(figure):
    picture = io.BytesIO()
    figure.savefig(picture, format="png", bbox_inches="tight")
    return base64.b64encode(picture.getvalue()).decode()


def open_figures():
    """Yields the formats of every open figure of pyplot. The figures are closed, so that each is shown at most once."""
    pyplot = sys.modules.get("matplotlib.pyplot")
    if pyplot is None:
        return
    try:
        for number in pyplot.get_fignums():
            figure = pyplot.figure(number)
            yield {"image/png": png_of_figure(figure), "text/plain": repr(figure)}
            pyplot.close(figure)
    finally:
        pyplot.close("all")


def close_figure(value):
    pyplot = sys.modules.get("matplotlib.pyplot")
    if pyplot is not None and is_figure(value):
        pyplot.close(value)


class FiguresBackend(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """A backend of matplotlib: Agg, which needs no screen, with a `show` that sends the figures as results.

    The module is created when matplotlib imports it by name, so it costs nothing before.
    """

    def __init__(self, show):
        self.show = show

    def find_spec(self, name, path, target=None):
        return importlib.machinery.ModuleSpec(name, self) if name == BACKEND else None

    def exec_module(self, module):
        from matplotlib.backends import backend_agg

        agg = {name: value for name, value in vars(backend_agg).items() if not name.startswith("__")}
        vars(module).update(agg, show=lambda *args, **kwargs: self.show())
