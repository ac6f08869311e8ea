"""What to try, in which order, and when to stop.

space      the plans that extend a candidate by one lever, and the refusals with their reasons
widening   what earlier outcomes add to the intervals of predictions
search     which plans to try next; ends when nothing left can beat the best by its upper bound
"""
