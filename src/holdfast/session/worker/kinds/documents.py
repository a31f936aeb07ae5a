"""Parts of spaCy's documents, pictures of Pillow, and what OpenCV finds: made again by their
libraries' public ways."""

from __future__ import annotations

import io
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.session.worker.kinds.contract import Recorder, Reduction

# `Any` below: objects of libraries that only some sessions load.


# -- spaCy -----------------------------------------------------------------------------------


def span(doc: Any, start: int, end: int, label: str, kb_id: str, span_id: str) -> Any:
    """A part of a document."""
    from spacy.tokens import Span  # type: ignore[import-not-found,unused-ignore]

    return Span(doc, start, end, label=label, kb_id=kb_id, span_id=span_id)


def reduce_span(recorder: Recorder, obj: Any) -> Reduction:
    """By its document and its place there."""
    names = (obj.label_, obj.kb_id_, obj.id_)
    return span, (obj.doc, obj.start, obj.end, *names)


def token(doc: Any, index: int) -> Any:
    """A word of a document."""
    return doc[index]


def reduce_token(recorder: Recorder, obj: Any) -> Reduction:
    """By its document and its place there."""
    return token, (obj.doc, obj.i)


# -- Pillow ----------------------------------------------------------------------------------


def frame(source: Any, number: int) -> Any:
    """A picture with several frames, at one of them. Raises OSError."""
    from PIL import Image  # type: ignore[import-not-found,unused-ignore]

    made = Image.open(source)
    made.seek(number)
    return made


def reduce_frames(recorder: Recorder, obj: Any) -> Reduction:
    """A picture of a file with frames: opened again, at the frame where it is."""
    file = getattr(obj, "fp", None) or getattr(obj, "_fp", None)
    if getattr(obj, "n_frames", 1) == 1 or file is None:
        return recorder.plain(obj)
    if isinstance(file, io.BytesIO):
        source: Any = io.BytesIO(file.getvalue())
    elif obj.filename and os.path.exists(obj.filename):
        with open(obj.filename, "rb") as opened:
            size = os.fstat(opened.fileno()).st_size
            recorder.check_size(size)
            # Its content: the file may be another one by then, and a picture is small.
            source = io.BytesIO(opened.read())
    else:
        return recorder.hole(obj, "its file is not known; open it again with Image.open")
    recorder.note("opened again from what its file held")
    return frame, (source, obj.tell())


def drawing(image: Any, mode: str | None, attributes: dict[str, Any]) -> Any:
    """What draws on a picture."""
    from PIL import ImageDraw

    made = ImageDraw.Draw(image, mode)
    for name, value in attributes.items():
        setattr(made, name, value)
    return made


def reduce_drawing(recorder: Recorder, obj: Any) -> Reduction:
    """By its picture."""
    kept = {name: getattr(obj, name) for name in ("fontmode", "fill", "font")}
    return drawing, (obj._image, obj.mode if obj.mode != obj._image.mode else None, kept)


def font(data: bytes | str, size: float, index: int, encoding: str, layout: Any) -> Any:
    """A font, from its file or its content."""
    from PIL import ImageFont

    source: Any = io.BytesIO(data) if isinstance(data, bytes) else data
    return ImageFont.FreeTypeFont(source, size, index, encoding, layout)


def reduce_font(recorder: Recorder, obj: Any) -> Reduction:
    """With its content, if it was made of that."""
    data = getattr(obj, "font_bytes", None) or obj.path
    if not isinstance(data, bytes | str):
        file = getattr(obj.path, "getvalue", None)
        data = file() if callable(file) else str(obj.path)
    return font, (data, obj.size, obj.index, obj.encoding, obj.layout_engine)


# -- OpenCV ----------------------------------------------------------------------------------


def key_point(*form: Any) -> Any:
    """A point that a detector found."""
    import cv2  # type: ignore[import-not-found,unused-ignore]

    return cv2.KeyPoint(*form)


def reduce_key_point(recorder: Recorder, obj: Any) -> Reduction:
    """By its numbers."""
    form = (*obj.pt, obj.size, obj.angle, obj.response, obj.octave, obj.class_id)
    return key_point, form


def match(*form: Any) -> Any:
    """Two points that fit."""
    import cv2

    return cv2.DMatch(*form)


def reduce_match(recorder: Recorder, obj: Any) -> Reduction:
    """By its numbers."""
    return match, (obj.queryIdx, obj.trainIdx, obj.imgIdx, obj.distance)


def algorithm(name: str, settings: dict[str, Any]) -> Any:
    """A detector with its settings."""
    import cv2

    made = getattr(cv2, f"{name}_create", None) or getattr(cv2, f"create{name}")
    made = made()
    for each, value in settings.items():
        getattr(made, f"set{each}")(value)
    return made


def reduce_algorithm(recorder: Recorder, obj: Any) -> Reduction:
    """By all that can be asked of it and set again."""
    kind = type(obj)
    names = [name[3:] for name in dir(kind) if name.startswith("set") and name != "set"]
    settings = {n: getattr(obj, f"get{n}")() for n in names if hasattr(kind, f"get{n}")}
    name = kind.__name__
    recorder.note(f"made again with its settings: {', '.join(settings)}")
    return algorithm, (name, settings)


def reduce_matcher(recorder: Recorder, obj: Any) -> Reduction:
    """OpenCV tells nothing of it."""
    return recorder.hole(obj, "OpenCV does not say how it was made: make it again")


def on_device(content: Any) -> Any:
    """A picture in OpenCV's own memory."""
    import cv2

    return cv2.UMat(content)


def reduce_on_device(recorder: Recorder, obj: Any) -> Reduction:
    """By its content."""
    return on_device, (obj.get(),)


def filter_of(form: tuple[int, int, int], matrices: dict[str, Any]) -> Any:
    """A Kalman filter."""
    import cv2

    made = cv2.KalmanFilter(*form)
    for name, value in matrices.items():
        setattr(made, name, value)
    return made


def reduce_filter(recorder: Recorder, obj: Any) -> Reduction:
    """By its matrices."""
    names = [n for n in dir(type(obj)) if not n.startswith("_") and not callable(getattr(obj, n))]
    matrices = {name: getattr(obj, name) for name in names}
    form = (len(obj.transitionMatrix), len(obj.measurementMatrix), 0)
    return filter_of, (form, {n: v for n, v in matrices.items() if v is not None})
