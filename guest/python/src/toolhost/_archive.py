"""Imports from a script that is an archive: tool.py, its other modules, and wheels."""

import importlib.abc
import importlib.machinery
import importlib.metadata
import importlib.resources.abc
import io
import linecache
import sys
import zipfile


class Finder(importlib.abc.MetaPathFinder, importlib.abc.InspectLoader):
    """Finds modules in an archive in memory, whose root is like a folder of sys.path."""

    def __init__(self, archive):
        self.archive, self.names = archive, set(archive.namelist())
        self.folders = {n[:i] for n in self.names for i, c in enumerate(n) if c == "/"}

    def find_spec(self, name, path=None, target=None):
        base = name.replace(".", "/")
        for file, package in ((base + "/__init__.py", True), (base + ".py", False)):
            if file in self.names:
                spec = importlib.machinery.ModuleSpec(name, self, origin=file, is_package=package)
                spec.has_location = True
                return spec
        if base in self.folders:  # a namespace
            return importlib.machinery.ModuleSpec(name, None, is_package=True)
        return None

    def get_source(self, name):
        return self.get_data(self.find_spec(name).origin).decode()

    def get_data(self, path):
        try:
            return self.archive.read(path)
        except KeyError:
            raise FileNotFoundError(path) from None

    def is_package(self, name):
        return self.find_spec(name).submodule_search_locations is not None

    def exec_module(self, module):
        origin = module.__spec__.origin
        source = self.get_source(module.__name__)
        linecache.cache[origin] = (len(source), None, source.splitlines(True), origin)
        exec(compile(source, origin, "exec", dont_inherit=True), module.__dict__)

    def get_resource_reader(self, name):
        return Reader(zipfile.Path(self.archive, name.replace(".", "/") + "/"))

    def find_distributions(self, context=importlib.metadata.DistributionFinder.Context()):
        for folder in sorted(self.folders):
            if "/" not in folder and folder.endswith(".dist-info"):
                d = Distribution(self.archive, folder)
                if context.name is None or normal(d.name) == normal(context.name):
                    yield d


def normal(name):
    return name.lower().replace("_", "-").replace(".", "-")


class Reader(importlib.resources.abc.TraversableResources):
    """The files beside a module."""

    def __init__(self, folder):
        self.folder = folder

    def files(self):
        return self.folder


class Distribution(importlib.metadata.Distribution):
    """A wheel that was packed."""

    def __init__(self, archive, folder):
        self.archive, self.folder = archive, folder

    def read_text(self, filename):
        try:
            return self.archive.read(f"{self.folder}/{filename}").decode()
        except KeyError:
            return None

    def locate_file(self, path):
        return zipfile.Path(self.archive, str(path))


def install(data):
    """Makes the archive importable, and returns the text of tool.py."""
    archive = zipfile.ZipFile(io.BytesIO(data))
    sys.meta_path.append(Finder(archive))
    return archive.read("tool.py")
