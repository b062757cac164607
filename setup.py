"""Lets tools that look for a setup.py find the package; everything it holds is in pyproject.toml."""

from setuptools import setup

setup()
