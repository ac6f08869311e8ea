"""The judge: from measured scores and gains alone, never from a prediction.

quality    is the drop within the budget: paired, one-sided tests on the same examples
scalar     the same where evaluate gives one number, bounded by changed decisions
bounds     Tango and Clopper-Pearson bounds of a drop
stopping   when a pass may end early, being over the budget for certain
missing    a missing or NaN metric is a failure
outcome    the verdict on a trial
"""
