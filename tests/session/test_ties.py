"""Objects of matplotlib that follow each other do so after a restore."""

from __future__ import annotations

import pytest
from tests.session.ties import Tie, Tried

IMPORTS = (
    "import matplotlib\nmatplotlib.use('Agg')\nimport matplotlib.pyplot as plt, numpy as np\n"
    "from functools import partial\nfrom matplotlib.colors import LogNorm, Normalize\n"
    "from matplotlib.widgets import Button, CheckButtons, Slider\n"
)
TIES = (
    Tie("colorbar",
        IMPORTS + "figure, axes = plt.subplots()\n"
        "image = axes.imshow(np.arange(4).reshape(2, 2))\nbar = figure.colorbar(image)",
        "(image.set_clim(0, 99), float(bar.vmax), bar.norm is image.norm, bar.mappable is image,"
        " (setattr(image, 'norm', LogNorm(1, 50)), round(float(bar.vmax)))[1],"
        " (image.set_cmap('gray'), bar.cmap.name)[1])"),
    Tie("norm of two images",
        IMPORTS + "_, (left, right) = plt.subplots(1, 2)\nnorm = Normalize(0, 1)\n"
        "first, second = (a.imshow(np.ones((2, 2)), norm=norm) for a in (left, right))\n"
        "over = left.figure.colorbar(first, ax=[left, right])",
        "(left.figure.canvas.draw(), setattr(norm, 'vmax', 7), second.norm.vmax,"
        " first.norm is norm, float(over.vmax), first.stale, second.stale)[2:]"),
    Tie("slider",
        IMPORTS + "_, place = plt.subplots()\nslider = Slider(place, 'x', 0, 1, valinit=0.5)\n"
        "moved = []\nnumber = slider.on_changed(lambda value: moved.append(value))\n"
        "slider.on_changed(partial(print, 'moved', end=''))",
        "(slider.set_val(0.7), slider.disconnect(number), slider.set_val(0.2), moved)"),
    Tie("buttons",
        IMPORTS + "canvas = plt.figure()\npressed = []\n"
        "button = Button(canvas.add_axes((0, 0, 0.1, 0.1)), 'go')\n"
        "button.on_clicked(lambda event: pressed.append('button'))\n"
        "checks = CheckButtons(canvas.add_axes((0.5, 0, 0.1, 0.1)), ['a', 'b'])\n"
        "checks.on_clicked(lambda label: pressed.append(label))",
        "(button._observers.process('clicked', None), checks.set_active(1), pressed)"),
    Tie("events",
        IMPORTS + "drawn, limits = plt.subplots()\nevents = []\n"
        "class Watcher:\n    def drawn(self, event):\n        events.append('draw')\n"
        "watcher = Watcher()\ndrawn.canvas.mpl_connect('draw_event', watcher.drawn)\n"
        "limits.callbacks.connect('xlim_changed', lambda axes: events.append('limits'))",
        "(events.clear(), drawn.canvas.draw(), limits.set_xlim(0, 5), events)[3]"),
    Tie("shared and twin axes",
        IMPORTS + "_, (upper, lower) = plt.subplots(2, sharex=True)\ntwin = upper.twinx()\n"
        "line, = upper.plot([1, 2], label='q')\nlegend = upper.legend()\n"
        "note = upper.annotate('here', (0, 0))",
        "(upper.set_xlim(0, 7), tuple(map(float, lower.get_xlim())),"
        " tuple(map(float, twin.get_xlim())), line in upper.lines, legend.axes is upper,"
        " note.axes is upper, upper.get_shared_x_axes().joined(upper, lower))[1:]"),
)  # fmt: skip


@pytest.fixture(scope="module")
def tried(tmp_path_factory: pytest.TempPathFactory) -> Tried:
    return Tried(TIES, tmp_path_factory.mktemp("ties"))


@pytest.mark.parametrize("name", [tie.name for tie in TIES])
def test_objects_follow_each_other(tried: Tried, name: str) -> None:
    tried.check(name)


@pytest.mark.parametrize("name", ["image", "bar", "norm", "slider", "button", "checks", "twin"])
def test_objects_that_follow_are_exact(tried: Tried, name: str) -> None:
    assert tried.report[name].outcome == "exact", tried.report[name]
