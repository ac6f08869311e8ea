"""How good ironlaw is, measured: each module that is run by name answers one question, with goals set beforehand.

ruler       does A against A come out equal?
overhead    is a known time measured right, and what do the tool and its observer cost?
search      how near to the best of a full grid does tune come in a quarter of the grid's time?
prediction  how near are predicted gains to measured ones, on models that nothing was calibrated on?
peers       the tuned point against what other tools give by themselves
memory      how near is the predicted peak memory of a training step to what is measured?
latency     how near is the predicted time of a call to the measured one, on unseen models?
terms       do the terms of a diagnosis agree with perturbations, and how much stays unexplained?
sensitivity  are the layers that int8_mixed spares nearly the best that all subsets hold?

common      options, goals, the JSON contract      arithmetic  means, intervals, verdicts on goals
rounds      arms interleaved in one run, resumable  arms        what a peer is, as levers or an artefact of its own
contest     one case of ``peers``                         foreign     peers in environments of their own
peer_scripts  what runs there
grid        the committed grid of ``search``        families    the held-out models of ``prediction``
spin        a worker whose every call takes 50 us   trained     the models and steps of ``memory``
unseen      the models of ``latency``, of which those that ``prediction`` does not have are in architectures
calls       one of them on both runtimes: predicted, then measured
agreement   terms beside what perturbations answer

Nothing here is imported by ironlaw. Results of full runs are committed under ``results/`` as they were measured.
"""

NAMES = ("ruler", "overhead", "search", "prediction", "peers", "memory", "latency", "terms", "sensitivity")
