"""Name the failures of the tool after the boundary that broke.

A candidate that is wrong, slow or hostile is not here: that is a `Verdict`, a value.

    CudaL1Error
    ├── ConfigError        the configuration or the command line: exit 2
    ├── UnsupportedError   this machine cannot do what was asked: exit 4
    ├── DiscoveryError     the tree cannot be read (not a directory, no git): exit 2
    ├── WorkerError        a worker could not be started or broke the protocol: exit 4
    ├── PromptError        a model cannot be asked: no text to show, or too little room: exit 4
    ├── ModelError         a language model's server cannot be started or reached: exit 4
    ├── ArchiveError       the archive cannot be opened or written: exit 4
    ├── ReportError        a report file cannot be read: exit 2
    └── ForgeError         results could not be posted, or are of another commit: exit 5
"""


class CudaL1Error(Exception):
    """Base of every failure of the tool; `exit_code` is what the command line returns for it."""

    exit_code = 4


class ConfigError(CudaL1Error):
    """A value in a file, the environment or a flag: names the file, the key and the fix."""

    exit_code = 2


class UnsupportedError(CudaL1Error):
    """This machine or interpreter cannot do what was asked."""


class DiscoveryError(CudaL1Error):
    """The tree to look at cannot be read."""

    exit_code = 2


class WorkerError(CudaL1Error):
    """A worker process could not be started, died on its own account, or broke the protocol."""


class WorkerTimeout(WorkerError):
    """A worker did not answer in time."""


class PromptError(CudaL1Error):
    """A model cannot be asked: there is no text to show it, or its window is too small."""


class ModelError(CudaL1Error):
    """The server of a language model cannot be started or reached. What it does wrong once it
    answers is no error: that costs an answer."""


class ArchiveError(CudaL1Error):
    """The archive of evaluations cannot be opened or written."""


class ReportError(CudaL1Error):
    """A report file cannot be read or is not a report."""

    exit_code = 2


class ForgeError(CudaL1Error):
    """Results could not be posted, or must not be: they are of another commit. What was measured
    is kept."""

    exit_code = 5
