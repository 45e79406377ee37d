"""Where `berth run --budget` begins in each process: Python imports a module of this name before a program. Another one on the path is imported as
it would be without berth."""

import importlib.machinery
import importlib.util
import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))
_PACKAGE = os.path.dirname(_HERE)


def _import_other() -> None:
    """The sitecustomize that this one hides."""
    others = [path for path in sys.path if os.path.abspath(path or ".") != _HERE]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", others)
    if spec is None or spec.loader is None:
        return
    module = importlib.util.module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


class _TorchFinder:
    """Imports torch as ever, then begins. Once."""

    @staticmethod
    def find_spec(name, path=None, target=None):  # type: ignore[no-untyped-def]
        if name != "torch":
            return None
        sys.meta_path.remove(_TorchFinder)
        spec = importlib.util.find_spec("torch")
        if spec is None or spec.loader is None:
            return spec
        run = spec.loader.exec_module

        def exec_module(module):  # type: ignore[no-untyped-def]
            run(module)
            try:
                import berth
            except ImportError:  # from the folder that `berth run` was started from
                sys.path.append(os.path.dirname(_PACKAGE))
            from berth import _loop

            _loop.begin()

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


if os.environ.get("BERTH_BUDGET"):
    sys.meta_path.insert(0, _TorchFinder)
_import_other()
