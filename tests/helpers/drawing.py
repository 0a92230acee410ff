"""Calls of the sampler from one flat set of settings, as tables of cases have them."""

import dataclasses

import jaxcontact as jc

LAW = {field.name for field in dataclasses.fields(jc.impact.Routh)}
RUN = {field.name for field in dataclasses.fields(jc.Run)}


def split(settings):
    """A law of the settings that are a law's, and the others."""
    law = jc.impact.Routh(**{name: value for name, value in settings.items() if name in LAW})
    return law, {name: value for name, value in settings.items() if name not in LAW}


def draw(terms, v, **settings):
    """Call `sample` with the law and the run that the settings make."""
    law, others = split(settings)
    run = jc.Run(**{name: others.pop(name) for name in RUN & set(others)})
    return jc.impact.sample(terms, v, law, run=run, **others)


def draw_in_jit(terms, v, key, **settings):
    """Call `sample_in_jit` with the law that the settings make."""
    law, others = split(settings)
    return jc.impact.sample_in_jit(terms, v, law, key, **others)


def with_law(function, terms, v, *more, **settings):
    """Call a function of (terms, v, law, ...) with the law that the settings make."""
    law, others = split(settings)
    return function(terms, v, law, *more, **others)
