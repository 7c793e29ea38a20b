"""The half that learns: data sets from traces, a reward from verdicts, the verifier as an environment, and a trainer that a person can read."""
