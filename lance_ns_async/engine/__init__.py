"""Operations on many tables: describe, list, walk and locate."""
