"""Check first what a run is configured to use. A run that finds no target would never need it, and
would not report a misspelled name.
"""

from __future__ import annotations

import shutil

from cudal1_ci.cli.execution import RAY
from cudal1_ci.config import Settings
from cudal1_ci.errors import ConfigError, UnsupportedError
from cudal1_ci.processes.container import find_engine
from cudal1_ci.propose.llm.servers.opening import refuse_missing_weights

MODEL_FLAGS = {"model.model": "--model", "model.adapter": "--adapter"}


def refuse_missing(settings: Settings, *, with_model: bool = False, judges: bool = True) -> None:
    """Refuse missing resources. Where nothing is verified, those named in a file may be missing,
    those named by a flag may not.

    Raises:
        ConfigError: There are no such weights, or no such adapter.
        UnsupportedError: There is no such interpreter, container engine or image here.
    """
    origins = {key: origin for key, _, origin in settings.origins()}

    def counts(key: str) -> bool:
        return judges or origins[key] == "command line"

    if settings.executor != RAY and settings.python is not None and counts("python"):
        refuse_no_interpreter(settings.python)
    if settings.executor == "container" and counts("executor"):
        find_engine(settings.container)
    if settings.model.model is None and origins["model.adapter"] == "command line":
        raise ConfigError(
            f"--adapter {settings.model.adapter}: there is no model that it is for; add --model "
            "with its weights, or leave --adapter out"
        )
    if with_model and settings.model.model is not None and counts("model.model"):
        try:
            refuse_missing_weights(settings.model)
        except ConfigError as error:
            said = str(error)
            for key, flag in MODEL_FLAGS.items():
                if origins[key] == "command line":
                    said = said.replace(f"{key}:", f"{flag}:", 1)
            raise ConfigError(said) from error


def refuse_no_interpreter(python: str) -> None:
    """Refuse an interpreter that cannot be started.

    Raises: UnsupportedError.
    """
    if shutil.which(python) is None:
        raise UnsupportedError(
            f"{python} cannot be started (it is no program that is here); name the interpreter of "
            "the project with --python or the `python` setting"
        )
