"""Packages an artefact whose verdict passed, and checks the package where it will run.

package   files, manifest with digests and measured numbers, a script that runs it; checked in a fresh process
"""
