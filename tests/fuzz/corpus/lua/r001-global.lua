return runn {}
