"""Situations that other tools got wrong in public, set up here and put to ironlaw: ``ironlaw validate cases``.

case      a case: its source, its situation, the verdict that is due, its cured twin; what an answer counts as
here      this machine: small models examined on it, and the plans and refusals for them
models    small seeded models that situations are made of
running   runs cases, counts right, undetermined and wrong; the account for people
recorded  ledgers of real models, counted once and kept, for cases that need another machine
cases     one module for each kind of failure, each with its ``CASES``
"""
